# Run once by the image of Citus on each node, after roles.sh, which has the function `password`.
#
# A node asks the others, and itself, as the role that asked it, with that role's password.

psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname tenure \
  --set superuser="$POSTGRES_USER" --set secret="$POSTGRES_PASSWORD" \
  --set owner="$(password migration_database_url)" \
  --set server="$(password database_url)" <<'SQL'
CREATE EXTENSION citus;
INSERT INTO pg_dist_authinfo (nodeid, rolename, authinfo)
SELECT node, name, format('password=%s', secret)
FROM unnest(ARRAY[-1, 0]) AS node,
  (VALUES (:'superuser', :'secret'), ('tenure_owner', :'owner'), ('tenure_server', :'server'))
    AS login (name, secret);
SQL
