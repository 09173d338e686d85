"""The shared store: counts of objectives read from a server with the HTTP API of Prometheus, where agents' metrics are.

`settings.py` says which server, `client.py` asks it, `questions.py` is the PromQL, `answers.py` what comes back;
`counts.py` answers what evaluation and reports ask of any store, `beside.py` adds what metrics do not carry.
"""
