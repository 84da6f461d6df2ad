"""A trained model on other graphs of the schema it was trained on, and on some nodes alone."""
