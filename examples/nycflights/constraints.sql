DROP TRIGGER flights_loaded ON public.flights;
DROP FUNCTION public.flights_loaded();

ALTER TABLE public.airlines ADD PRIMARY KEY (carrier);
ALTER TABLE public.airports ADD PRIMARY KEY (faa);
ALTER TABLE public.planes ADD PRIMARY KEY (tailnum);
-- (origin, year, month, day, hour) is no key: the local hour 1 of 3 November
-- 2013, when summer time ended, occurs twice at each airport.
ALTER TABLE public.weather ADD PRIMARY KEY (origin, time_hour);

-- Flights have no natural key. Four destinations are no FAA airports, and many
-- tail numbers are unknown to the registry, so those columns reference nothing.
ALTER TABLE public.flights
    ADD PRIMARY KEY (id),
    ADD FOREIGN KEY (carrier) REFERENCES public.airlines,
    ADD FOREIGN KEY (origin) REFERENCES public.airports,
    ALTER COLUMN updated_at SET DEFAULT clock_timestamp(),
    ALTER COLUMN updated_at SET NOT NULL;
CREATE INDEX flights_updated_at ON public.flights (updated_at, id);

CREATE FUNCTION public.flights_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;

CREATE TRIGGER flights_changed BEFORE UPDATE ON public.flights
    FOR EACH ROW EXECUTE FUNCTION public.flights_changed();
