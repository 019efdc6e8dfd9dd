"""The newest development sets, written for what a blind set showed to be missed or wrongly found."""
