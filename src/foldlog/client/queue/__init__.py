"""The log as a queue: records that are taken, and accepted, given back or rejected one by one."""
