"""What people and programs are shown: read models over the ledger. Reads only."""
