"""The pure middle: from records and counts to halves, pairs, selections and SLI rows."""
