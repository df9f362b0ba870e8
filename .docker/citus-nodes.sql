-- Run on the coordinator at each start, in the database `tenure`, as the superuser: a node that it
-- knows already stays as it is.
SELECT citus_set_coordinator_host('postgres');
SELECT citus_add_node('citus-1', 5432);
SELECT citus_add_node('citus-2', 5432);
-- Citus knows a role once an object of this database depends on it.
CREATE FUNCTION public.tenure_roles() RETURNS integer LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION public.tenure_roles() OWNER TO tenure_owner;
GRANT EXECUTE ON FUNCTION public.tenure_roles() TO tenure_program, tenure_reader, tenure_server;
DROP FUNCTION public.tenure_roles();
