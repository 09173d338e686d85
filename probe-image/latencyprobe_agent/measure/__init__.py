"""The pure middle: from records, counts and evidence to halves, pairs, sampling decisions and what explains them."""
