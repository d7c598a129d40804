"""One file per engine adapter: from a manifest to the plan that starts one replica."""
