"""What ``make check-deploy`` judges: image, compose, manifests, pipelines and rules, with nothing but their files."""
