"""What each signal of the kernel is: its object, ring, record and decoder."""
