"""TCP-RT: tasks of a connection as Alibaba's kernel module splits them, docs/design/evidence.md, "TCP-RT"."""
