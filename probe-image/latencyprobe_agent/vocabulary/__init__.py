"""What all rooms speak of: records, names, ids, times."""
