"""What was measured and proven: reading, merging into tables, the ledger."""
