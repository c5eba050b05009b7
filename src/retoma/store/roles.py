"""The role with which all processes connect to the embedded server: it owns the database and is not a superuser.

The superuser, which initdb creates, sets it up once and is not used again. In a data folder of an older release the
superuser owns everything; ownership passes to the role.
"""

from __future__ import annotations

ROLE = "retoma_app"
PASSWORD_FILE = "role-password"  # noqa: S105  (the name of the file)
PSQL_OPTIONS = ["--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--dbname=retoma"]


def build_script(password: str) -> str:
    """Return the script that psql runs as the superuser. It may run twice. `password` has no quotes."""
    return f"""
set log_min_error_statement = panic;
set search_path = pg_catalog;
do $$ begin
  if not exists (select from pg_roles where rolname = '{ROLE}') then
    create role {ROLE};
  end if;
end $$;
alter role {ROLE} with login nosuperuser createdb nocreaterole noreplication nobypassrls password '{password}';
grant pg_monitor, pg_checkpoint to {ROLE};
alter database retoma owner to {ROLE};
do $$
declare
  found record;
begin
  for found in {_OBJECTS} loop
    execute format('alter %s %s owner to {ROLE}', found.kind, found.name);
  end loop;
end $$;
"""


# What the superuser owns, except system objects. Sequences of columns and types of tables follow their tables.
_OBJECTS = """
    with schemas as (
      select oid, nspname, nspowner
      from pg_namespace
      where nspname !~ '^pg_'
        and nspname <> 'information_schema'
    ),
    extensions as (
      select classid, objid
      from pg_depend
      where deptype = 'e'
    ),
    columns as (
      select objid
      from pg_depend
      where classid = 'pg_class'::regclass
        and refclassid = 'pg_class'::regclass
        and refobjsubid > 0
        and deptype in ('a', 'i')
    )
    select 'schema' as kind, quote_ident(nspname) as name
    from schemas
    where nspowner = current_user::regrole
      and nspname <> 'public'
    union all
    select case relkind
             when 'S' then 'sequence'
             when 'v' then 'view'
             when 'm' then 'materialized view'
             when 'f' then 'foreign table'
             else 'table'
           end,
           format('%I.%I', nspname, relname)
    from pg_class
    join schemas on schemas.oid = relnamespace
    where relowner = current_user::regrole
      and relkind in ('r', 'p', 'v', 'm', 'f', 'S')
      and not (relkind = 'S' and pg_class.oid in (select objid from columns))
      and ('pg_class'::regclass, pg_class.oid) not in (select classid, objid from extensions)
    union all
    select 'routine', pg_proc.oid::regprocedure::text
    from pg_proc
    join schemas on schemas.oid = pronamespace
    where proowner = current_user::regrole
      and ('pg_proc'::regclass, pg_proc.oid) not in (select classid, objid from extensions)
    union all
    select 'type', format('%I.%I', nspname, typname)
    from pg_type
    join schemas on schemas.oid = typnamespace
    left join pg_class on pg_class.oid = typrelid
    where typowner = current_user::regrole
      and (typtype in ('e', 'd', 'r') or relkind = 'c')
      and ('pg_type'::regclass, pg_type.oid) not in (select classid, objid from extensions)
"""
