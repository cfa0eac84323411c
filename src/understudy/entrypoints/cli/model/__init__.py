"""``understudy model``; a verb's module is imported when the verb is used."""
