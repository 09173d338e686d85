"""SLO arithmetic: windows, burn rates, evaluation. Pure."""
