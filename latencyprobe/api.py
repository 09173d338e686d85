"""The API's name in Kubernetes."""

GROUP = "latencyprobe.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "LatencyProbe"
