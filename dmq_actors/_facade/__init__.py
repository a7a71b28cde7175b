"""The methods of `MessageQueue`, by what they are about."""
