{{/* What the Deployment and the pre-delete Job share. */}}
{{- define "latencyprobe.operatorPod" -}}
shareProcessNamespace: true # process 1 would miss a SIGTERM before Python takes it
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.operator.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.operator.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.operator.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.operator.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "latencyprobe.operatorContainer" -}}
image: {{ include "latencyprobe.image" (list . "operator") }}
{{- with .Values.operator.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
env:
  - {name: LATENCYPROBE_NAMESPACE, value: {{ .Release.Namespace | quote }}}
  - {name: LATENCYPROBE_AGENT_NAMESPACE, value: {{ include "latencyprobe.agentNamespace" . }}}
  - {name: LATENCYPROBE_AGENT_SERVICE_ACCOUNT, value: {{ include "latencyprobe.fullname" . }}-agent}
  - {name: LATENCYPROBE_AGENT_TOLERATIONS, value: {{ .Values.agent.tolerations | default list | toJson | quote }}}
  - {name: LATENCYPROBE_TLS_DIR, value: /etc/latencyprobe/tls}
  - {name: LATENCYPROBE_PAIR_KEY_FILE, value: /etc/latencyprobe/pair/key}
  - {name: LATENCYPROBE_STORE, value: /var/lib/latencyprobe/sli.db}
  {{- if not .Values.persistence.enabled }}
  - {name: LATENCYPROBE_STORE_EPHEMERAL, value: "true"}
  - {name: LATENCYPROBE_STORE_LIMIT, value: {{ .Values.persistence.size | quote }}} # an emptyDir's volume is the node's
  {{- end }}
  {{- $shared := include "latencyprobe.sharedStore" . | fromYaml }}
  {{- if $shared.url }}
  - {name: LATENCYPROBE_SLO_STORE, value: prometheus}
  - {name: LATENCYPROBE_PROMETHEUS_URL, value: {{ $shared.url | quote }}}
  - {name: LATENCYPROBE_PROMETHEUS_TIMEOUT, value: {{ $shared.timeoutSeconds | default 10 | quote }}}
  {{- with $shared.headers }}
  {{- $headers := list }}
  {{- range $name, $value := . }}
  {{- $headers = append $headers (printf "%s=%s" $name ($value | urlquery | replace "+" "%20")) }}
  {{- end }}
  - {name: LATENCYPROBE_PROMETHEUS_HEADERS, value: {{ join "," $headers | quote }}}
  {{- end }}
  {{- if $shared.tokenSecret }}
  - {name: LATENCYPROBE_PROMETHEUS_TOKEN_FILE, value: /etc/latencyprobe/prometheus-token/token}
  {{- end }}
  {{- if $shared.caConfigMap }}
  - {name: LATENCYPROBE_PROMETHEUS_CA_FILE, value: /etc/latencyprobe/prometheus-ca/ca.crt}
  {{- end }}
  {{- end }}
  {{- if ((.Values.slo).prometheusRules).enabled }}
  - {name: LATENCYPROBE_RULE_LABELS, value: {{ .Values.slo.prometheusRules.labels | default dict | toJson | quote }}}
  {{- end }}
  {{- if ((.Values.slo).openReports).enabled }}
  - {name: LATENCYPROBE_OPEN_REPORTS, value: "true"}
  {{- end }}
  {{- if and .Values.otlp.operator .Values.otlp.endpoint }}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .Values.otlp.endpoint | quote }}}
  {{- if .Values.otlp.caConfigMap }}
  - {name: OTEL_EXPORTER_OTLP_CERTIFICATE, value: /etc/otlp-ca/ca.crt}
  {{- end }}
  {{- end }}
  {{- if .Values.agent.suspend }}
  - {name: LATENCYPROBE_SUSPEND, value: "true"}
  {{- end }}
  {{- with .Values.operator.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
