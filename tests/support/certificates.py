"""Certificates for servers on loopback."""

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a self-signed certificate for `localhost` and 127.0.0.1, NAME.crt, and its key, NAME.key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    algorithm = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *algorithm, "-keyout", str(key), "-out", str(certificate), *subject]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
