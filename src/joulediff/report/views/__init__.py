"""What every report of a kind shows: rows and sentences, without a format."""
