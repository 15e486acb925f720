"""A long run of the real processes under load and churn; does memory stay flat, is anything left behind?"""
