-- Runs on the coordinator at each start, in the database `tenure`, as the superuser. Known nodes are
-- left unchanged.
SELECT citus_set_coordinator_host('postgres');
SELECT citus_add_node('citus-1', 5432);
SELECT citus_add_node('citus-2', 5432);
-- Citus only knows roles on which an object of this database depends.
CREATE FUNCTION public.tenure_roles() RETURNS integer LANGUAGE sql AS 'SELECT 1';
ALTER FUNCTION public.tenure_roles() OWNER TO tenure_owner;
GRANT EXECUTE ON FUNCTION public.tenure_roles() TO tenure_program, tenure_reader, tenure_server;
DROP FUNCTION public.tenure_roles();
