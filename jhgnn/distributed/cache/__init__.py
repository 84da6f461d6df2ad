"""What a fast tier of fixed size should keep: planned from visits that are known before they happen."""
