"""Group, version and kind of a LatencyProbe in Kubernetes."""

GROUP = "latencyprobe.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "LatencyProbe"
