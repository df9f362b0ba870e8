# Run once on each node by the Citus image, after roles.sh, which defines the function `password`.
#
# A node connects to the others and to itself as the role of the client, with that role's password.

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
