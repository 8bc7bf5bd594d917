"""What the SQL views share: names, types, bookmarks, connections, and the swap that ends a rebuild."""
