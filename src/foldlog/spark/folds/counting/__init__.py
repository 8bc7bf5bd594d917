"""How a range of rows is counted: in Spark's SQL, in Arrow on the executors, and the long way in plain Python."""
