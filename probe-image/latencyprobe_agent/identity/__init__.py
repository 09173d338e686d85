"""Who: cgroups to containers and pods, owners to resources, files to the plan of this host."""
