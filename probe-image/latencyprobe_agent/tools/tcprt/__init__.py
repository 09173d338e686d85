"""TCP-RT: tasks of a connection as Alibaba's kernel module splits them, tcp-evidence.md part B."""
