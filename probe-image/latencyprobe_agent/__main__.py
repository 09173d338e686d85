"""`python -m latencyprobe_agent`: the DaemonSet's entry without the command line around it."""

from latencyprobe.cli import main

if __name__ == "__main__":
    main(["agent"])
