"""Control hears of this sidecar and its instances, and what operators order by way of control is carried out."""
