"""The quantile of the normal distribution by which intervals of predictions are made."""

import statistics

# standard deviations to either side of the middle that hold 90 %: 1.644854
Z90 = statistics.NormalDist().inv_cdf(0.95)
