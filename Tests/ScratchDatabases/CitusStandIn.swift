package import Postgres

/// What a database needs to look like one with Citus, as far as distributing a schema goes.
///
/// Citus itself is not to be had in every place where tests run. The stand-in has its functions'
/// names, parameters and catalogue; it refuses what Citus 13 and 14 refuse of a table's keys, and
/// notes what it was asked. It moves no row: what Citus makes of a statement it can't tell.
package enum CitusStandIn {
  /// Puts the stand-in into a database.
  ///
  /// - Throws: What the database says; whoever asks has to be a superuser.
  package static func install(in database: ConnectionPool) async throws {
    try await database.runScript(script)
  }

  /// What it was asked, in order, such as `reference product`.
  package static func calls(in database: ConnectionPool) async throws -> [String] {
    try await database.query("SELECT replace(call, 'tenure.', '') FROM citus_call ORDER BY number")
      .decode(String.self)
  }

  private static let script = #"""
    BEGIN;
    SET LOCAL allow_system_table_mods = on;
    SET LOCAL search_path TO pg_catalog;

    INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
    SELECT pg_nextoid('pg_extension'::regclass, 'oid', 'pg_extension_oid_index'::regclass), 'citus',
      10, 'pg_catalog'::regnamespace, false, 'stand-in';

    CREATE SCHEMA citus;
    CREATE TYPE citus.distribution_type AS ENUM ('hash', 'range', 'append');
    CREATE TABLE pg_catalog.citus_call (
      number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, call text NOT NULL);
    CREATE TABLE pg_catalog.pg_dist_node (nodename text NOT NULL, groupid integer NOT NULL);
    INSERT INTO pg_dist_node VALUES ('localhost', 0);
    CREATE TABLE pg_catalog.pg_dist_partition (
      logicalrelid regclass NOT NULL PRIMARY KEY, partmethod "char" NOT NULL, partkey text,
      colocationid integer NOT NULL, repmodel "char" NOT NULL);
    CREATE TABLE pg_catalog.pg_dist_object (
      classid oid NOT NULL, objid oid NOT NULL, PRIMARY KEY (classid, objid));
    GRANT SELECT ON pg_dist_node, pg_dist_partition, pg_dist_object TO PUBLIC;

    CREATE FUNCTION pg_catalog.citus_version() RETURNS text
    LANGUAGE sql AS $$ SELECT 'a stand-in for Citus' $$;

    -- Of this stand-in a key is its column's name.
    CREATE FUNCTION pg_catalog.column_to_column_name(table_name regclass, column_var_text text)
    RETURNS text LANGUAGE sql STRICT AS $$ SELECT column_var_text $$;

    CREATE FUNCTION pg_catalog.citus_requires_new(wanted regclass) RETURNS void
    LANGUAGE plpgsql AS $$
    BEGIN
      IF EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = wanted) THEN
        RAISE EXCEPTION 'table "%" is already distributed', wanted;
      END IF;
      IF current_setting('citus.enable_local_reference_table_foreign_keys', true)
        IS DISTINCT FROM 'off'
      THEN
        RAISE EXCEPTION 'tables with a foreign key to "%" would follow it', wanted;
      END IF;
    END
    $$;

    CREATE FUNCTION pg_catalog.create_reference_table(table_name regclass) RETURNS void
    LANGUAGE plpgsql AS $$
    DECLARE
      fault text;
    BEGIN
      PERFORM citus_requires_new(table_name);
      SELECT f.conname INTO fault FROM pg_constraint AS f
      LEFT JOIN pg_dist_partition AS p ON p.logicalrelid = f.confrelid
      WHERE f.conrelid = table_name AND f.contype = 'f' AND p.repmodel IS DISTINCT FROM 't';
      IF FOUND THEN
        RAISE EXCEPTION 'the foreign key % does not point to a reference table', fault;
      END IF;
      INSERT INTO pg_dist_partition VALUES (table_name, 'n', NULL, 1, 't');
      INSERT INTO citus_call (call) VALUES ('reference ' || table_name::text);
    END
    $$;

    CREATE FUNCTION pg_catalog.create_distributed_table(
      table_name regclass, distribution_column text,
      distribution_type citus.distribution_type DEFAULT 'hash',
      colocate_with text DEFAULT 'default', shard_count integer DEFAULT NULL)
    RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
      key smallint;
      place integer;
      fault text;
    BEGIN
      PERFORM citus_requires_new(table_name);
      SELECT attnum INTO key FROM pg_attribute
      WHERE attrelid = table_name AND attname = distribution_column AND attnum > 0
        AND attnotnull AND attgenerated = '' AND attidentity = '';
      IF NOT FOUND THEN
        RAISE EXCEPTION 'column "%" of relation "%" is no distribution column',
          distribution_column, table_name;
      END IF;
      IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = table_name AND NOT tgisinternal) THEN
        RAISE EXCEPTION 'cannot distribute relation "%" because it has triggers', table_name;
      END IF;
      IF NOT EXISTS (SELECT FROM pg_index WHERE indrelid = table_name AND indisprimary) THEN
        RAISE EXCEPTION 'relation "%" has no primary key', table_name;
      END IF;
      SELECT indexrelid::regclass::text INTO fault FROM pg_index
      WHERE indrelid = table_name AND indisunique AND NOT key = ANY (indkey::smallint[]);
      IF FOUND THEN
        RAISE EXCEPTION 'cannot create constraint on "%": % lacks the distribution column',
          table_name, fault;
      END IF;
      CASE colocate_with
        WHEN 'none' THEN
          SELECT coalesce(max(colocationid), 1) + 1 INTO place FROM pg_dist_partition;
        WHEN 'default' THEN RAISE EXCEPTION 'the group of "%" is left to chance', table_name;
        ELSE
          SELECT colocationid INTO STRICT place FROM pg_dist_partition
          WHERE logicalrelid = colocate_with::regclass AND partmethod = 'h';
      END CASE;
      SELECT f.conname INTO fault FROM pg_constraint AS f
      LEFT JOIN pg_dist_partition AS p ON p.logicalrelid = f.confrelid
      LEFT JOIN pg_attribute AS k
        ON k.attrelid = f.confrelid AND k.attname = p.partkey
      WHERE f.conrelid = table_name AND f.contype = 'f'
        AND p.repmodel IS DISTINCT FROM 't'
        AND (p.partmethod IS DISTINCT FROM 'h' OR p.colocationid <> place
          OR f.confkey[array_position(f.conkey, key)] IS DISTINCT FROM k.attnum);
      IF FOUND THEN
        RAISE EXCEPTION 'cannot create foreign key constraint %: it leaves the shard', fault;
      END IF;
      INSERT INTO pg_dist_partition VALUES (table_name, 'h', distribution_column, place, 's');
      INSERT INTO citus_call (call)
      VALUES (format('by %s %s with %s', distribution_column, table_name, colocate_with));
    END
    $$;

    CREATE FUNCTION pg_catalog.citus_add_local_table_to_metadata(
      table_name regclass, cascade_via_foreign_keys boolean DEFAULT false)
    RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
      neighbour regclass;
    BEGIN
      PERFORM citus_requires_new(table_name);
      INSERT INTO pg_dist_partition VALUES (table_name, 'n', NULL, 0, 's');
      FOR neighbour IN
        SELECT CASE WHEN f.conrelid = table_name THEN f.confrelid ELSE f.conrelid END
        FROM pg_constraint AS f
        WHERE f.contype = 'f' AND table_name IN (f.conrelid, f.confrelid)
      LOOP
        IF EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = neighbour) THEN
          CONTINUE;
        END IF;
        IF NOT cascade_via_foreign_keys THEN
          RAISE EXCEPTION 'relation "%" is involved in a foreign key relationship', table_name;
        END IF;
        PERFORM citus_add_local_table_to_metadata(neighbour, true);
      END LOOP;
      INSERT INTO citus_call (call) VALUES ('local ' || table_name::text);
    END
    $$;

    CREATE FUNCTION pg_catalog.create_distributed_function(
      function_name regprocedure, distribution_arg_name text DEFAULT NULL,
      colocate_with text DEFAULT 'default', force_delegation boolean DEFAULT NULL)
    RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
      IF EXISTS (
        SELECT FROM pg_depend
        WHERE classid = 'pg_proc'::regclass AND objid = function_name
          AND refclassid = 'pg_class'::regclass)
      THEN
        RAISE EXCEPTION 'function "%" reads a table', function_name;
      END IF;
      INSERT INTO pg_dist_object VALUES ('pg_proc'::regclass, function_name);
    END
    $$;
    COMMIT;
    """#
}
