// Native checks of betweenness, eigenvector and pagerank.
#pragma once

void test_centrality();
