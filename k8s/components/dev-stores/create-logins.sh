#!/bin/sh
# Makes the logins of every process, each with the role of docs/reference/sql.md that it needs and no other.
# Postgres' image runs it once, when it makes a new cluster. Run it yourself against any Postgres, as the database's owner
# who may create roles and databases (CREATEROLE, CREATEDB), or as a superuser; SECRETS is the folder with a file
# NAME_password for each login. A second run gives the logins the passwords that are in the folder then.
set -eu
secrets=${SECRETS:-/run/secrets}
password() { cat "$secrets/$1_password"; }
psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-understudy}" \
  --set owner="$(password owner)" --set proxy="$(password proxy)" --set monitor="$(password monitor)" \
  --set retention="$(password retention)" --set engineer="$(password engineer)" --set agent="$(password agent)" <<'SQL'
BEGIN;
SELECT format('CREATE ROLE %I NOLOGIN', name) FROM unnest(ARRAY['understudy_proxy', 'understudy_monitor',
  'understudy_engineer', 'understudy_retention', 'understudy_reader', 'understudy_eraser', 'understudy_agent', 'understudy_trusted', 'owner_login',
  'proxy_login', 'monitor_login', 'retention_login', 'engineer_login', 'agent_login']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
ALTER ROLE owner_login LOGIN PASSWORD :'owner';
ALTER ROLE proxy_login LOGIN PASSWORD :'proxy';
ALTER ROLE monitor_login LOGIN PASSWORD :'monitor';
ALTER ROLE retention_login LOGIN PASSWORD :'retention';
ALTER ROLE engineer_login LOGIN PASSWORD :'engineer';
ALTER ROLE agent_login LOGIN PASSWORD :'agent';
-- Trusted to say who asked: the command line names the person, the proxy's control plane the key.
SELECT format('GRANT %I TO %I', role, login) FROM (VALUES ('understudy_proxy', 'proxy_login'),
  ('understudy_monitor', 'monitor_login'), ('understudy_retention', 'retention_login'),
  ('understudy_engineer', 'engineer_login'), ('understudy_trusted', 'engineer_login'),
  ('understudy_agent', 'agent_login')) AS given (role, login)
WHERE NOT pg_has_role(login, role, 'MEMBER') \gexec
-- The owner of the database makes tables and gives the roles their rights; it is no superuser.
SELECT datdba <> 'owner_login'::regrole AS moves FROM pg_database WHERE datname = current_database() \gset
\if :moves
  -- Only a member of the new owner may give a database to it; the login that runs this is one only until then.
  GRANT owner_login TO CURRENT_USER;
  SELECT format('ALTER DATABASE %I OWNER TO owner_login', current_database()) \gexec
  REVOKE owner_login FROM CURRENT_USER;
\endif
COMMIT;
SQL
