CREATE TABLE public.airlines (
    carrier text NOT NULL,
    name    text NOT NULL
);
COMMENT ON TABLE public.airlines IS 'airlines by carrier code';

CREATE TABLE public.airports (
    faa   text NOT NULL,
    name  text NOT NULL,
    lat   double precision NOT NULL,
    lon   double precision NOT NULL,
    alt   integer NOT NULL,
    tz    smallint NOT NULL,
    dst   char(1) NOT NULL,
    tzone text
);
COMMENT ON TABLE public.airports IS 'airports by FAA code; lat and lon in degrees, alt in feet';

CREATE TABLE public.planes (
    tailnum      text NOT NULL,
    year         smallint,
    type         text NOT NULL,
    manufacturer text NOT NULL,
    model        text NOT NULL,
    engines      smallint NOT NULL,
    seats        smallint NOT NULL,
    speed        smallint,
    engine       text NOT NULL
);
COMMENT ON TABLE public.planes IS 'planes that the FAA registry knows; not every flight has one';

CREATE TABLE public.weather (
    origin     text NOT NULL,
    year       smallint NOT NULL,
    month      smallint NOT NULL,
    day        smallint NOT NULL,
    hour       smallint NOT NULL,
    temp       double precision,
    dewp       double precision,
    humid      double precision,
    wind_dir   smallint,
    wind_speed double precision,
    wind_gust  double precision,
    precip     numeric(4,2) NOT NULL,
    pressure   numeric(5,1),
    visib      numeric(4,2) NOT NULL,
    time_hour  timestamptz NOT NULL
);
COMMENT ON TABLE public.weather IS 'hourly weather at the three origins; year to hour are local time';

CREATE TABLE public.flights (
    id             bigint GENERATED ALWAYS AS IDENTITY,
    year           smallint NOT NULL,
    month          smallint NOT NULL,
    day            smallint NOT NULL,
    dep_time       smallint,
    sched_dep_time smallint NOT NULL,
    dep_delay      smallint,
    arr_time       smallint,
    sched_arr_time smallint NOT NULL,
    arr_delay      smallint,
    carrier        text NOT NULL,
    flight         integer NOT NULL,
    tailnum        text,
    origin         text NOT NULL,
    dest           text NOT NULL,
    air_time       smallint,
    distance       integer NOT NULL,
    hour           smallint NOT NULL,
    minute         smallint NOT NULL,
    time_hour      timestamptz NOT NULL,
    updated_at     timestamptz
);
COMMENT ON TABLE public.flights IS 'all flights that left New York City in 2013; times are local, as hhmm';
COMMENT ON COLUMN public.flights.dep_time IS 'actual departure, NULL for a canceled flight';

-- While the file is loaded, a flight counts as last changed in its scheduled
-- hour, which gives cursors a year of values. constraints.sql ends that.
CREATE FUNCTION public.flights_loaded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := NEW.time_hour;
    RETURN NEW;
END $$;

CREATE TRIGGER flights_loaded BEFORE INSERT ON public.flights
    FOR EACH ROW EXECUTE FUNCTION public.flights_loaded();
