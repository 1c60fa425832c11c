#pragma once

void test_gatv2();
