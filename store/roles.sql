-- Roles belong to the whole server: they may exist, and another database's
-- migration may create them at the same moment.
DO $$
DECLARE
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['tranship_owner', 'tranship_app', 'tranship_maintenance'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
        -- Somebody who logs in as one of the roles is not made a member of it.
        IF current_user <> role AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_auth_members m
            WHERE m.roleid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = role)
              AND m.member = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
              -- From 16 on, whoever creates a role only gets the right to grant it.
              AND coalesce((to_jsonb(m) ->> 'set_option')::boolean, true)
        ) THEN
            BEGIN
                EXECUTE format('GRANT %I TO CURRENT_USER', role);
            EXCEPTION WHEN unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;
CREATE SCHEMA IF NOT EXISTS tranship AUTHORIZATION tranship_owner;
