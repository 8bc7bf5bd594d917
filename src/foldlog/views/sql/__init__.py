"""What the views in SQL share: names, types, bookmarks, connections, and the swap that ends a rebuild."""
