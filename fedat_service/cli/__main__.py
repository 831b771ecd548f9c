"""`python -m fedat_service.cli`."""

from fedat_service.cli import main

main()
