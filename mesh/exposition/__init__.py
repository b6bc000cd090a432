"""What a scrape of /metrics gets: native histograms and the formats, beside what prometheus_client has."""
