#!/bin/sh
# Makes the logins of every process, each with the role of docs/reference/sql.md that it needs and no other.
# Postgres' image runs it once, when it makes a new cluster. Run it yourself, against any Postgres, as somebody who may
# create roles; SECRETS is the folder with a file NAME_password for each login.
set -eu
secrets=${SECRETS:-/run/secrets}
password() { cat "$secrets/$1_password"; }
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-understudy}" \
  --set database="${POSTGRES_DB:-understudy}" \
  --set owner="$(password owner)" --set proxy="$(password proxy)" --set monitor="$(password monitor)" \
  --set retention="$(password retention)" --set engineer="$(password engineer)" <<'SQL'
SELECT format('CREATE ROLE %I NOLOGIN', name) FROM unnest(ARRAY['understudy_proxy', 'understudy_monitor',
  'understudy_engineer', 'understudy_retention', 'understudy_reader', 'understudy_trusted']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
CREATE ROLE owner_login LOGIN PASSWORD :'owner';
CREATE ROLE proxy_login LOGIN PASSWORD :'proxy' IN ROLE understudy_proxy;
CREATE ROLE monitor_login LOGIN PASSWORD :'monitor' IN ROLE understudy_monitor;
CREATE ROLE retention_login LOGIN PASSWORD :'retention' IN ROLE understudy_retention;
-- Trusted to say who asked: the command line names the person, the proxy's control plane the key.
CREATE ROLE engineer_login LOGIN PASSWORD :'engineer' IN ROLE understudy_engineer, understudy_trusted;
-- The owner of the database makes tables and gives the roles their rights; it is no superuser.
ALTER DATABASE :"database" OWNER TO owner_login;
SQL
