"""Who: cgroups to containers and pods, peer addresses to workloads, the directory, the local plan."""
