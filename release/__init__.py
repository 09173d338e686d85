"""What is released, and how it is built: `make release`. No part of what is installed."""
