"""What is damaged or out of date in a log: found, set aside, written anew."""
