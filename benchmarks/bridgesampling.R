# Bridge sampling by the R package bridgesampling, for benchmarks/bridgesampling.py.
#
# The log density is that of the caller: a line with a point is written to the standard output, and
# its log density is read from the standard input. The last line begins with "=".
library(bridgesampling)

arguments <- commandArgs(trailingOnly = TRUE)
n_chains <- as.integer(arguments[2])
draws <- as.matrix(read.csv(arguments[1], header = FALSE))
names <- paste0("x", seq_len(ncol(draws)))
colnames(draws) <- names
chain <- rep(seq_len(n_chains), each = nrow(draws) / n_chains)
samples <- coda::mcmc.list(lapply(seq_len(n_chains), function(i) {
  coda::mcmc(draws[chain == i, , drop = FALSE])
}))

answers <- file("stdin", open = "r")
log_posterior <- function(x, data) {
  cat(sprintf("%.17g", x), "\n")
  flush(stdout())
  as.numeric(readLines(answers, n = 1))
}

estimated <- function(method, repetitions) {
  bridge_sampler(
    samples = samples, log_posterior = log_posterior, data = NULL, method = method,
    repetitions = repetitions, silent = TRUE,
    lb = setNames(rep(-Inf, ncol(draws)), names), ub = setNames(rep(Inf, ncol(draws)), names)
  )
}
found <- estimated("normal", 1)
cat("= normal", sprintf("%.17g", c(found$logml, sqrt(error_measures(found)$re2))), "\n")
# for warped draws, the package states no error: that of the median is not larger than the spread
found <- estimated("warp3", 5)
cat("= warp3", sprintf("%.17g", c(median(found$logml), sd(found$logml))), "\n")
