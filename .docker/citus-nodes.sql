-- Run on the coordinator at each start: a node that it knows already stays as it is.
SELECT citus_set_coordinator_host('postgres');
SELECT citus_add_node('citus-1', 5432);
SELECT citus_add_node('citus-2', 5432);
