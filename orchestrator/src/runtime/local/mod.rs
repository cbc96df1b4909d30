//! The embedded runtime: Linux namespaces, no daemon and no image needed.
