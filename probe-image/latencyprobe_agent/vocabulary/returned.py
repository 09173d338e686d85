"""What system calls return, in words."""

import errno

# include/linux/errno.h: a signal came; the kernel makes EINTR of it, or the same call once more
_RESTARTS = {512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND"}


def returned(ret: int) -> str:
    """Return what a call returned, an error by its name."""
    name = errno.errorcode.get(-ret) or _RESTARTS.get(-ret)
    return f"-{name}" if name else str(ret)
