{{/* Services and namespaces are named after the release, which takes less than Helm. */}}
{{- define "latencyprobe.fullname" -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" .Release.Name) -}}
{{- fail (printf "release name %s: it must begin with a letter and have no dot, as Services and namespaces are named after it" .Release.Name) -}}
{{- end -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "latencyprobe.agentNamespace" -}}
{{ .Release.Name }}-agents
{{- end }}

{{- define "latencyprobe.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "latencyprobe.fullname" .)) }}
{{- end }}

{{- define "latencyprobe.caConfigMap" -}}
{{ .Values.tls.caConfigMap | default (printf "%s-ca" (include "latencyprobe.fullname" .)) }}
{{- end }}

{{- define "latencyprobe.pairSecret" -}}
{{ .Values.pairing.existingSecret | default (printf "%s-pair" (include "latencyprobe.fullname" .)) }}
{{- end }}

{{/* The directory's DNS name inside the cluster: the agents dial it, the certificate names it. */}}
{{- define "latencyprobe.directoryHost" -}}
{{ include "latencyprobe.fullname" . }}-directory.{{ .Release.Namespace }}.svc
{{- end }}

{{/* Argument of the next three: (list $ "component"). */}}
{{- define "latencyprobe.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "latencyprobe.labels" -}}
{{- $root := index . 0 -}}
{{ include "latencyprobe.selectorLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ $root.Chart.Name }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "latencyprobe.image" -}}
{{- $root := index . 0 -}}
{{- $image := (index $root.Values (index . 1)).image -}}
{{- with $image.registry }}{{ . }}/{{ end }}{{ $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Its values, whole: `helm upgrade --reuse-values` has none of those that a new chart brings. Of one value, `(.Values.a).b`. */}}
{{- define "latencyprobe.serviceMonitor" -}}
{{- merge (dict) ((.Values.metrics | default dict).serviceMonitor | default dict) (dict "prometheus" dict) | toYaml -}}
{{- end }}

{{/* The server that judges objectives, whole; empty for the operator's own counts. `--reuse-values` as above. */}}
{{- define "latencyprobe.sharedStore" -}}
{{- $slo := .Values.slo | default dict -}}
{{- ternary ($slo.prometheus | default dict) dict (eq ($slo.store | default "sqlite") "prometheus") | toYaml -}}
{{- end }}

{{/* Secrets that are made once must be looked up at every later rendering; without a cluster they would change each time. */}}
{{- define "latencyprobe.requireCluster" -}}
{{- if not (lookup "v1" "Namespace" "" "kube-system") -}}
{{- fail "the chart makes its TLS certificate and pairing key once and finds them again in the cluster, which `helm template` and GitOps tools cannot: set tls.existingSecret (or tls.certManager.issuerRef) with tls.ca (or tls.caConfigMap), and pairing.existingSecret" -}}
{{- end -}}
{{- end }}

{{/*
Helm would take over an object of an earlier release that is still being deleted, and lose it a moment later: a namespace
that takes nothing new, CRDs that vanish. Failing here comes before anything is stored, so that the same command works when
it is gone; an error later would leave a release that blocks its name. Argument: (list "apiVersion" "Kind" "namespace" "name").
*/}}
{{- define "latencyprobe.requireNotGoing" -}}
{{- $live := lookup (index . 0) (index . 1) (index . 2) (index . 3) -}}
{{- with (($live.metadata | default dict).deletionTimestamp) -}}
{{- $why := $live.metadata.finalizers | default list -}}
{{- range ($live.status | default dict).conditions -}}
{{- if and (eq .status "True") (regexMatch "Remaining|Failure|Terminating" .type) }}{{ $why = append $why .message }}{{ end -}}
{{- end -}}
{{- $held := ternary (printf ", held by: %s" (join "; " $why)) "" (gt (len $why) 0) -}}
{{- fail (printf "%s %s of an earlier release is being deleted since %s%s. It takes some 30 s: run the same command again when it is gone" $live.kind $live.metadata.name . $held) -}}
{{- end -}}
{{- end }}

{{/*
Helm deletes what the revision before had and this one has not, unless the live object says keep; whoever else applied it
meanwhile does not count. Argument: (list $ CRD).
*/}}
{{- define "latencyprobe.requireKept" -}}
{{- $release := (index . 0).Release -}}
{{- $crd := index . 1 -}}
{{- $live := ((lookup $crd.apiVersion $crd.kind "" $crd.metadata.name).metadata | default dict).annotations | default dict -}}
{{- $owner := pick $live "meta.helm.sh/release-namespace" "meta.helm.sh/release-name" -}}
{{- $own := deepEqual $owner (dict "meta.helm.sh/release-namespace" $release.Namespace "meta.helm.sh/release-name" $release.Name) -}}
{{- if and $own (ne (index $live "helm.sh/resource-policy" | default "") "keep") -}}
{{- fail (printf "crds.install: false would have Helm delete %s %s, and every %s with it: upgrade with crds.keep=true first, then again with crds.install=false" $crd.kind $crd.metadata.name $crd.spec.names.kind) -}}
{{- end -}}
{{- end }}
