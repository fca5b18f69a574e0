"""The built-in slot-filling corpus: requests for flights, written by a grammar whose entities are the slots.

What makes it a sequence problem: a city is a departure, an arrival or a stop by the words before it,
sometimes far before it ("to boston and denver"); "at nine" is a departure or an arrival by the verb;
"one way" ends where "one" does not.
"""

from functools import lru_cache
from itertools import accumulate

from crfbook.datasets.grammar import Grammar, Words, uniform_numbers
from crfbook.datasets.lexicon import CITIES, made_up

# The symbol that a sentence begins with is its intent: INTENTS has them with their weights.
RULES = """
ask_flight 6 : OPEN flights_x ROUTE
ask_flight 5 : OPEN flights_x ROUTE DAY
ask_flight 5 : OPEN flights_x ROUTE DEPART
ask_flight 4 : OPEN flights_x ROUTE DAY DEPART
ask_flight 4 : OPEN flights_x ROUTE arriving_x ARRIVE
ask_flight 3 : OPEN a_x KIND flight_x ROUTE DAY
ask_flight 3 : OPEN KIND flights_x ROUTE on_x AIRLINE
ask_flight 3 : i_x want_x to_x fly_x ROUTE DAY and_x arrive_x ARRIVE
ask_flight 3 : i_x need_x to_x leave_x FROM and_x be_x in_x TO ARRIVE
ask_flight 2 : DAY i_x need_x a_x flight_x ROUTE
ask_flight 2 : is_x there_x a_x flight_x ROUTE that_x stops_x in_x STOP
ask_flight 2 : list_x AIRLINE flights_x ROUTE with_x a_x STOPOVER
ask_flight 2 : what_x flights_x leave_x FROM DEPART and_x arrive_x in_x TO ARRIVE
ask_flight 2 : show_x me_x the_x EXTREME flight_x ROUTE
ask_flight 1 : which_x flights_x serve_x <meal meal > ROUTE
ask_flight 1 : return_x from_x TO on_x <return_date.day_name day > after_x flying_x from_x FROMCITY
ask_airfare 5 : what_x is_x the_x EXTREME fare_x ROUTE
ask_airfare 3 : how_x much_x is_x a_x CLASS ticket_x ROUTE
ask_airfare 3 : show_x me_x <round_trip trip > fares_x ROUTE
ask_airfare 2 : fares_x ROUTE under_x <fare_amount amount dollars_x >
ask_airline 3 : which_x airlines_x fly_x ROUTE
ask_airline 2 : what_x airline_x is_x <airline_code code >
ask_ground 4 : what_x <transport_type transport > is_x available_x in_x <city_name city >
ask_ground 2 : how_x do_x i_x get_x from_x <airport_name AIRPORT > to_x downtown_x <city_name city >
ask_meaning 3 : what_x does_x <fare_basis_code basis > mean_x
ask_meaning 2 : what_x does_x the_x code_x <airport_code airport > stand_x for_x
ask_time 3 : what_x time_x does_x <airline_code code > flight_x <flight_number figure > ROUTE leave_x
ask_time 2 : when_x does_x the_x <depart_time.time_relative relative > flight_x leave_x FROM for_x TO
ask_plane 3 : what_x kind_x of_x aircraft_x is_x used_x ROUTE
ask_plane 2 : how_x many_x seats_x in_x a_x <aircraft_code aircraft >
OPEN 3 : show_x me_x
OPEN 2 : i_x would_x like_x
OPEN 2 : i_x 'd_x like_x to_x see_x
OPEN 2 : list_x all_x
OPEN 1 : please_x give_x me_x
OPEN 1 : are_x there_x any_x
ROUTE 9 : from_x FROMCITY to_x TO
ROUTE 3 : between_x FROMCITY and_x TO
ROUTE 3 : to_x TO from_x FROMCITY
ROUTE 2 : from_x FROMCITY to_x TO via_x STOP
ROUTE 2 : FROMCITY to_x TO
ROUTE 1 : to_x TO
ROUTE 1 : out_x of_x FROMCITY to_x TO
FROM 1 : FROMCITY
FROM 1 : from_x FROMCITY
FROMCITY 9 : <fromloc.city_name city >
FROMCITY 2 : <fromloc.city_name city > <fromloc.state_name state >
FROMCITY 1 : <fromloc.airport_name AIRPORT >
FROMCITY 1 : <fromloc.airport_code airport >
TO 9 : <toloc.city_name city >
TO 2 : <toloc.city_name city > <toloc.state_name state >
TO 1 : <toloc.airport_name AIRPORT >
TO 1 : <toloc.airport_code airport >
TO 1 : either_x <toloc.city_name city > or_x <toloc.city_name city >
STOP 1 : <stoploc.city_name city >
AIRPORT 1 : city airport_x
AIRPORT 1 : city international_x airport_x
STOPOVER 1 : stop_x in_x STOP
STOPOVER 1 : stopover_x at_x <stoploc.airport_code airport >
DAY 6 : on_x <depart_date.day_name day >
DAY 3 : on_x <depart_date.month_name month > <depart_date.day_number number >
DAY 2 : on_x <depart_date.day_name day > <depart_date.month_name month > <depart_date.day_number number >
DAY 2 : <depart_date.today_relative today >
DAY 1 : the_x <depart_date.day_number number > of_x <depart_date.month_name month >
DAY 2 : on_x <depart_date.day_name day > <depart_time.period_of_day period >
DEPART 4 : <depart_time.time_relative relation > <depart_time.time hour half >
DEPART 2 : <depart_time.time_relative relation > <depart_time.time oclock_hour o'clock_x >
DEPART 3 : in_x the_x <depart_time.period_of_day period >
DEPART 1 : between_x <depart_time.start_time hour half > and_x <depart_time.end_time hour half >
ARRIVE 4 : <arrive_time.time_relative relation > <arrive_time.time hour half >
ARRIVE 2 : in_x the_x <arrive_time.period_of_day period >
ARRIVE 2 : on_x <arrive_date.day_name day >
ARRIVE 1 : <arrive_time.time_relative relation > <arrive_time.time oclock_hour o'clock_x >
KIND 3 : <flight_stop stops >
KIND 2 : <round_trip trip >
KIND 1 : <class_type CLASSNAME >
CLASS 1 : <round_trip trip >
CLASS 1 : <class_type CLASSNAME >
CLASSNAME 2 : first_x class_x
CLASSNAME 2 : coach_x
CLASSNAME 1 : business_x class_x
EXTREME 3 : <cost_relative cheap >
EXTREME 2 : <flight_mod order >
AIRLINE 2 : <airline_name line >
AIRLINE 2 : <airline_name line airlines_x >
AIRLINE 1 : <airline_code code >
"""
INTENTS = {"flight": 70, "airfare": 10, "ground": 6, "airline": 4, "meaning": 4, "time": 4, "plane": 2}
WORDS = {
    "day": "monday friday tuesday wednesday thursday saturday sunday",
    "month": "june may march july august september april",
    "number": "first second third fifth tenth twentieth 12 21 30 fourth",
    "hour": "9 8 5 10 7 6 12 11 830 1145 715",
    "half": "am pm am a.m. p.m.",
    "oclock_hour": "9 six five ten 4 noon",
    "relation": "after before at by around",
    "relative": "last first next earliest latest",
    "period": "morning afternoon evening night noon",
    "today": "today tomorrow tonight",
    "state": "texas ohio california georgia florida washington",
    "airport": "jfk bos dfw atl ord lax",
    "line": "united delta american continental northwest eastern summit pacific",
    "code": "ua dl aa co ea",
    "figure": "212 417 98 1059 281 5 33",
    "trip": "one-way round-trip return",
    "stops": "nonstop direct connecting",
    "meal": "breakfast lunch dinner snack",
    "transport": "limousine taxi train rental bus",
    "cheap": "cheapest lowest cheap low",
    "order": "earliest last first latest",
    "amount": "200 150 1000 300",
    "basis": "q y qx bh h ap/57",
    "aircraft": "747 d9s 727 m80",
}


@lru_cache(maxsize=1)
def grammar():
    cities = [city.lower() for city in CITIES.split()]
    two_words = ["new", "san", "st.", "fort"]
    cities = list(
        dict.fromkeys(cities + made_up(1200, "ton ville burg ford ia land port ", uniform_numbers(4000)))
    )
    words = {key: Words(text.split(), power=0.8) for key, text in WORDS.items()}
    words["town"] = Words(cities, power=0.8, shift=4)
    words["before_town"] = Words(two_words, power=0.5)
    rules = RULES + "city 5 : town\ncity 1 : before_town town\n"
    return Grammar(rules, words)


def slot_sentences(n, seed):
    """n requests as (list of (word, slot), intent), deterministic in the seed."""
    draw = uniform_numbers(seed)
    intents = Words(INTENTS)
    weights = list(accumulate(INTENTS.values()))
    intents.cumulative = [weight / weights[-1] for weight in weights[:-1]]
    out = []
    for _ in range(n):
        intent = intents.draw(draw())
        tokens = grammar().sentence(draw, "ask_" + intent)
        out.append(([(token.word, token.entity) for token in tokens], intent))
    return out
